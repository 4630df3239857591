package proof

// keyID is how a signature names its key.
type keyID struct {
	name string
	hash uint32
}

func idOf(v interface {
	Name() string
	KeyHash() uint32
}) keyID {
	return keyID{v.Name(), v.KeyHash()}
}
