"""The ClassAd language of HTCondor: how expressions are read here, and what they come to."""
