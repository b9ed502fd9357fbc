"""What can vary when a token is decoded: the attention, where its cache lies, and who computes."""
