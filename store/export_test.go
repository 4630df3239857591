package store

// DecodeHead and ScanHead are the two readers that ParseHead consists of.
var (
	DecodeHead = decodeHead
	ScanHead   = scanHead
	Usual      = usual
	ParseTime  = parseTime
)
