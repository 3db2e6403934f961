//go:build !cgo

package codec

// pack makes no forms: Go's decoder gains nothing from them.
func (d *Decoder) pack(*Packed, []byte, *Header, int) error {
	return fail(ErrNotPacked, "this build has no libjpeg")
}

// appendScan appends the scan of an exact form.
func (d *Decoder) appendScan(dst []byte, p *Packed) ([]byte, error) {
	begin := len(dst)
	dst, err := appendScanGo(dst, p.Header, p.Body, p.Ones)
	if err == nil && len(dst)-begin != p.ScanSize {
		err = fail(ErrCorrupt, damagedForm)
	}
	if err != nil {
		dst = dst[:begin]
	}
	return dst, err
}
