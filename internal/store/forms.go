package store

// Forms is implemented by stores that are InPlace and can hold a sample in another form than as
// read, in the place of its bytes. Forms are bytes of a kind, which stores do not interpret; 0 is
// the sample as read.
//
// A sample in another form is held: Has, Held and Origin say so, and Drop drops it. Locate and View
// do not find it, and Read returns ErrForm, so that only what asks for forms gets one.
type Forms interface {
	InPlace
	// Replace puts a form of a sample in the place of the copy that is held. Views of that copy stay
	// valid. Of kind 0, data are the sample's bytes. If the copy was a form, or becomes the sample,
	// there is room for it even if memory may not grow (Shrinker), and up to a segment beyond the
	// capacity: once a segment is empty, there is more room than before. Replace returns ErrNotHeld
	// if the sample is not held, or its copy was dropped or replaced meanwhile, and ErrFull as Put
	// does; the store is then unchanged.
	Replace(id int, kind uint8, data []byte) error
	// Form returns the copy of a sample that is held in another form than as read, which must be
	// released once. It returns ErrNotHeld if the sample is not held, or is as read, and ErrCorrupt
	// if the copy's checksum is wrong: the store has then dropped it. There is nothing to release
	// after an error.
	Form(id int) (Form, error)
	// Discard drops a sample if the copy that is held is still this form, which must not have been
	// released: another reader may have discarded it before, and a new copy come. It reports whether
	// it did.
	Discard(id int, form Form) bool
	// Formed returns what is held in other forms than as read.
	Formed() Formed
}

// FormReader is implemented by stores that are not InPlace and can hold a sample in another form
// than as read, in the place of its bytes, as described at Forms. Forms take no room of samples as
// read: the store has as much for these, whatever it holds.
type FormReader interface {
	Prompt
	// Replace puts a form of a sample in the place of the copy that is held, which stays until the
	// form is complete. Of kind 0, data are the sample's bytes. It returns ErrNotHeld if the sample
	// is not held, or its copy was dropped or replaced meanwhile, and ErrFull if the class takes no
	// more; the store is then unchanged.
	Replace(id int, kind uint8, data []byte) error
	// FormInfo describes the copy of a sample that is held in another form than as read; ok is false
	// if it is not held, or is as read.
	FormInfo(id int) (info FormInfo, ok bool)
	// ReadForm fills dst, of the form's size, with the form that FormInfo has described. It returns
	// ErrNotHeld if the sample is held in that form no more, and ErrCorrupt if the checksum was
	// wrong: the store has then dropped it.
	ReadForm(id int, info FormInfo, dst []byte) error
	// ReadFormNow is ReadForm, as ReadNow is Read.
	ReadFormNow(id int, info FormInfo, dst []byte) error
	// Formed returns what is held in other forms than as read.
	Formed() Formed
	// FormRoom returns how many bytes forms may take more than the same samples as read, beyond what
	// they do now; below 0: so many too many.
	FormRoom() int64
}

// FormInfo describes a form that a FormReader holds.
type FormInfo struct {
	Bytes  int64
	Digest uint32 // of the form, taken when it was put there
	Kind   uint8
}

// Form is a copy of a sample in another form than as read. Data must not be modified, and is valid
// until the Hold is released.
type Form struct {
	Hold
	Data   []byte
	Kind   uint8
	Digest uint32 // of Data, taken when it was put there
}

// Formed describes what a store holds in other forms than as read.
type Formed struct {
	Samples int64
	Bytes   int64 // that their forms take
	AsRead  int64 // bytes that they have as read
}
