package store

// Refuser is a Store that may stop taking samples although it has room.
type Refuser interface {
	Store
	// Refuses returns why Put returns ErrFull whatever room there is, such as an error of the
	// disk; "": it does not.
	Refuses() string
}
