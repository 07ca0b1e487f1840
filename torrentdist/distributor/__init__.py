"""CodeDistributor, the loader of plug-ins, and the implementations that come with the house."""
