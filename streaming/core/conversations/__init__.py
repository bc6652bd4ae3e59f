"""Conversations: endpoints, the order of their messages, and what is held. docs/conversations.md has the rules.

To read the router's part, begin at the top:

    endpoint_states   the states of an endpoint, as one table
    conversation      the state: endpoints, directions with the messages that wait, the far endpoint
    context           the facts of a batch, and the decisions so far
    held_messages     a conversation in a batch: where its messages go, and why they are held
    transmission      the same, with the messages to its far endpoint
    delivery          the same, with sending, delivering, dropping and ending by an error
    step              the same, with lifetimes and timers: all that may be done with a conversation
    statements        what a program says
    dispatcher        what the far endpoint says; `answers`: what belongs to no endpoint here
    due_work          what is due, what the transport reports, and when to look again
    suspects          what ends because the router was restored
    questions         the questions to the configuration service; `route_questions`: their conversations
    mirrors           which address of a mirrored route has the principal
    snapshot          a conversation as plain values

A batch of a shard (spark/routing/step_shard.py) calls them in this order: definitions, reports, messages from other
instances, what waits for instances that can be reached again, what is due, questions, statements of programs, and
acknowledgements. spark/routing/conversation_store.py knows which conversations are due, also after a change of
definitions. Nothing here knows topics: that a queue is missing is learned from the transport's reports.

`decisions` are what the router tells the transport, which carries them out by `decision_batches` and `marks`.
"""
