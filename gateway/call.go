package gateway

// call is one call of a model.
type call struct{}

func (c *call) request(p []byte) {}
