"""What the REST API shows: one struct for each object, which workers fill and the API's description is made of."""
