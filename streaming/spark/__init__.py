"""What any query of ours needs of Spark."""
