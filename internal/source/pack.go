package source

// Align is the multiple at which each field of a packed sample begins: what a field holds can then
// be used in place as an array of any type, and by vector instructions.
const Align = 64

// Missing is the length of a field that a sample does not have.
const Missing = -1

// Pack returns where the fields of a sample lie in its packed form, and the size of that. The
// packed sample, which is cached, sent and hashed, is its fields one after another, each at a
// multiple of Align, with zeros between them, and no header. A field that is Missing takes no
// bytes. A sample of one field is that field.
//
// The offsets are appended to dst, one per length.
func Pack(dst []int64, lengths []int64) (offsets []int64, size int64) {
	for _, n := range lengths {
		at := aligned(size)
		dst = append(dst, at)
		if n != Missing {
			size = at + n
		}
	}
	return dst, size
}

func aligned(at int64) int64 { return (at + Align - 1) &^ (Align - 1) }
