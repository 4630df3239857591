package store

// Difference is a difference between a store and its segments.
type Difference struct {
	Run  string // empty: the store as a whole
	Text string
}
