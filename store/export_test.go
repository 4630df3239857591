package store

// DecodeHead and ScanHead are the two readers of ParseHead.
var (
	DecodeHead = decodeHead
	ScanHead   = scanHead
	Usual      = usual
	ParseTime  = parseTime
)
