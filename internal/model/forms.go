package model

import (
	"fmt"
	"math"
)

// Forms are copies in memory that take less time to be preprocessed than the samples that they are
// of (decisions 95 and 100). A node keeps as many as it has memory for beside all samples that the
// plan places there. Its zero value means that there are none.
type Forms struct {
	// Time is in parts of the time that a sample takes to be preprocessed, 0: there are no forms; and
	// Size in parts of the sample's size, at least 1.
	Time float64 `json:"time"`
	Size float64 `json:"size"`
	// Sent means that a node that reads a sample of another one is sent its form, if there is one,
	// unless it is to keep the sample (decision 99). Otherwise it is sent the sample.
	Sent bool `json:"sent"`
}

const (
	// FormSize is the size of forms of JPEGs, in parts of the file's: those of photographs take 1.05
	// to 1.2 (decision 95).
	FormSize = 1.12
	// MostSent is how large a form may be that is sent to another node, in parts of the sample.
	MostSent = 1.5
	// MostForm is how large a form may be that is kept, in parts of the sample.
	MostForm = 63
)

// Validate returns an error for impossible forms.
func (f Forms) Validate() error {
	if f == (Forms{}) || f.Time > 0 && f.Time <= 1 && f.Size >= 1 && !math.IsInf(f.Size, 1) {
		return nil
	}
	return fmt.Errorf("forms take %v of the time and %v times the size; it must be above 0 and at "+
		"most 1 of the time, and at least 1 times the size", f.Time, f.Size)
}

// Part returns which part of so many MB, or bytes, in memory of this capacity are forms.
func (f Forms) Part(held, capacity float64) float64 {
	room := capacity - held
	switch {
	case f.Size == 0 || held <= 0 || room < 0:
		return 0
	case room >= held*(f.Size-1):
		return 1
	}
	return room / (held * (f.Size - 1))
}

// Needs returns how much memory keeps forms of samples of so many MB, or bytes: at least these.
func (f Forms) Needs(held float64) float64 { return held * f.Size }

// SentSize returns how large what leaves another node is, in parts of the sample, if such a part of
// what it keeps is forms.
func (f Forms) SentSize(part float64) float64 {
	if !f.Sent {
		return 1
	}
	return 1 + part*(f.Size-1)
}
