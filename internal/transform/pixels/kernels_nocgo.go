//go:build !cgo

package pixels

func (j *resample) run(kernel) { j.runGo() }

func (p *Packer) pack(dst []byte, src *Image, flip Flip) { p.packGo(dst, src, flip) }

// kernelPlan is empty: the Go twin needs only the table.
type kernelPlan struct{}

func (*kernelPlan) prepare(*Packer) {}
