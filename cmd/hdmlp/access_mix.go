package main

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/plan/access"
)

// mixed checks the flags of a mix, and sets those that follow from it. changed reports whether a
// flag was given.
func (opts *accessOptions) mixed(changed func(flag string) bool) error {
	switch {
	case opts.mix == "" && changed("epoch-size"):
		return badInput("--epoch-size without --mix: an epoch has all --samples")
	case opts.mix == "":
		return nil
	case changed("samples"):
		return badInput("--samples and --mix: the datasets of --mix have their samples already; " +
			"leave --samples out")
	case !changed("epoch-size"):
		return badInput("--mix without --epoch-size: give the number of samples of an epoch")
	case !changed("shuffle"):
		opts.shuffle = string(access.Feistel)
	}
	m := &access.Mixture{Entries: opts.epochSize}
	var weights []*big.Rat
	opts.samples = 0
	for _, entry := range strings.Split(opts.mix, ",") {
		samples, weight, _ := strings.Cut(entry, ":")
		n, err := strconv.Atoi(samples)
		near, other := strconv.ParseFloat(weight, 64)
		if err != nil || other != nil || n < 1 || n > math.MaxInt32 || !(near >= 0) ||
			math.IsInf(near, 1) {
			return badInput("--mix: %q must be N:WEIGHT, the samples of a dataset, at least 1, and "+
				"its weight, 0 or more", entry)
		}
		exact := new(big.Rat)
		if near >= 1e-30 { // others are too small to count, and their fractions too large
			exact.SetString(weight)
		}
		m.Sizes, weights = append(m.Sizes, n), append(weights, exact)
		opts.samples += n
	}
	row, ok := wholeWeights(weights)
	if !ok {
		return badInput("--mix: as whole numbers the weights add up to 0, or to 2^32 or more: give " +
			"others")
	}
	m.Weights = [][]uint64{row}
	opts.mixture = m
	return nil
}

// wholeWeights returns weights as the smallest whole numbers in the same proportions, as
// hdmlp.torch.Mix does; ok is false if they add up to 0, or to 2^32 or more.
func wholeWeights(weights []*big.Rat) (row []uint64, ok bool) {
	scale, shared := big.NewInt(1), new(big.Int)
	for _, w := range weights {
		gcd := new(big.Int).GCD(nil, nil, scale, w.Denom())
		scale.Mul(scale, new(big.Int).Div(w.Denom(), gcd))
	}
	var numbers []*big.Int
	for _, w := range weights {
		n := new(big.Int).Mul(w.Num(), new(big.Int).Div(scale, w.Denom()))
		shared.GCD(nil, nil, shared, n)
		numbers = append(numbers, n)
	}
	if shared.Sign() == 0 {
		return nil, false
	}
	sum := uint64(0)
	for _, n := range numbers {
		n.Div(n, shared)
		if n.BitLen() > 32 {
			return nil, false
		}
		row = append(row, n.Uint64())
		sum += n.Uint64()
	}
	return row, sum <= math.MaxUint32
}
