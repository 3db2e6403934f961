package analysis

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
	"github.com/hdmlp/hdmlp/internal/model/remedy"
)

// atOnce is how many times the dataset memory takes at least while JPEGs become coefficients, whose
// size is not known before (docs/OPERATIONS.md).
const atOnce = 4. / 3

// FormBytes returns how much memory a node needs for forms of all samples, in bytes. On several
// nodes each keeps all, as second copies come before forms under the default policy.
func (m *Measured) FormBytes() int64 {
	return int64(max(atOnce, spare*m.Forms.Size) * m.Dataset.MB * mega)
}

// formed returns the job, of hdmlp's loader, with all samples in forms; nil: it has none.
func (m *Measured) formed() *Measured {
	if m.Forms == nil || len(m.Preparation) == 0 {
		return nil
	}
	return m.scaled(1 / m.Forms.Time)
}

// forms fills in what forms of all samples would take and bring, and adds that as a change if there
// is memory for it, more than the job has, and preparation limits. with is the job with hdmlp's
// loader, and text what makes it so.
func (r *Report) forms(with *Measured, text string, guessed []string,
	add func(*Measured, string, []remedy.Change, []string) (Option, error),
) error {
	f := with.formed()
	if f == nil {
		return nil
	}
	rate := func(m *Measured) float64 {
		rates, _ := rates(m.Run(), false, nil)
		return rates.Preparation
	}
	bytes := with.FormBytes()
	r.Formed = &Formed{
		MB: float64(bytes) / mega, Fits: bytes <= with.Room, Prepare: rate(f), AsRead: rate(with),
	}
	r.Formed.Has = text == "" && with.Loader.CacheMB >= r.Formed.MB
	now, _ := rates(with.Run(), false, nil)
	if !r.Formed.Fits || r.Formed.Has || now.Limit() != remedy.Preprocessing {
		return nil
	}
	option, err := add(f, text+fmt.Sprintf("memory=%s for images in forms that are decoded faster",
		human.Format(bytes)), []remedy.Change{{Key: remedy.Memory, Amount: float64(bytes)}},
		guessed)
	option.Forms = true
	if err == nil {
		r.Remedies = append(r.Remedies, option)
	}
	return err
}
