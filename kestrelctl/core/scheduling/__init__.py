"""Which task goes where, and why not: demand and supply, and the plan that joins them."""
