package store

// Difference is a place in which a store is not what its segments give.
type Difference struct {
	Run  string // empty: it is about the store as a whole
	Text string
}
