"""Conversations: endpoints, the order of their messages, and held messages. docs/conversations.md has the rules.

To read the router's part, begin at the top:

    endpoint_states   the states of an endpoint, as one table
    conversation      the state: endpoints, directions with the messages that wait, the far endpoint
    context           the facts of a batch, and the decisions so far
    held_messages     a conversation in a batch: the routes of its messages, and the reasons why messages are held
    transmission      adds the messages to the far endpoint
    delivery          adds sending, delivering, dropping and ending by an error
    step              adds lifetimes and timers
    statements        the statements of programs
    dispatcher        the messages of other instances
    due_work          timers, changed definitions, reports of the transport, and the instant of the next look
    suspects          the conversations that end because the router was restored
    questions         the questions to the configuration service; `route_questions`: their conversations
    mirrors           the principals of mirrored routes
    snapshot          a conversation as plain values

A batch of a shard (spark/routing/step_shard.py) takes its input in this order: definitions, reports, messages from
other instances, messages to instances that can be reached again, due conversations, questions, statements of programs,
and acknowledgements. spark/routing/conversation_store.py finds the due conversations, also after a change of
definitions. Nothing here reads topics: the transport reports that a queue is missing.

The router writes `decisions`. The transport carries them out with `decision_batches` and `marks`.
"""
