package scenario

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hdmlp/hdmlp/internal/model/envfile"
	"github.com/hdmlp/hdmlp/internal/source"
	"github.com/hdmlp/hdmlp/internal/study/sizes"
)

// resolve returns a path in the scenario file as one that can be opened.
func (f *File) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(f.path), path)
}

// sizesOf returns the sizes that were read from the file before.
func (f *File) sizesOf(path string) ([]float64, error) {
	f.known.mu.Lock()
	defer f.known.mu.Unlock()
	if sizes, ok := f.known.sizes[path]; ok {
		return sizes, nil
	}
	return nil, fmt.Errorf("%s has not been read", path)
}

// once reads sizes from each file only once.
func (f *File) once(path string, read func(path string) ([]float64, error)) ([]float64, error) {
	c := &f.known
	c.mu.Lock()
	defer c.mu.Unlock()
	if sizes, ok := c.sizes[path]; ok || c.fault[path] != nil {
		return sizes, c.fault[path]
	}
	sizes, err := read(path)
	if err == nil && len(sizes) == 0 {
		err = errors.New("the file has no samples")
	}
	if err != nil {
		c.fault[path] = err
		return nil, err
	}
	c.sizes[path] = sizes
	return sizes, nil
}

// indexOf reads the sizes in MB from an index, as `hdmlp dataset` writes it.
func (f *File) indexOf(path string) ([]float64, error) {
	return f.once(path, func(path string) ([]float64, error) {
		file, bytes, err := openRegular(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		index, err := source.Decode(file, bytes)
		if err != nil {
			return nil, fmt.Errorf("%w; `hdmlp dataset PATH` makes one, and names it", err)
		}
		sizes := make([]float64, index.Len())
		for k := range sizes {
			sizes[k] = float64(max(1, index.Size(k))) / 1e6
		}
		return sizes, nil
	})
}

// listOf reads a file with one size in MB per line.
func (f *File) listOf(path string) ([]float64, error) {
	return f.once(path, func(path string) ([]float64, error) {
		var sizes []float64
		err := eachLine(path, func(n int, line string) error {
			v, err := strconv.ParseFloat(line, 64)
			if err != nil || !(v > 0) || math.IsInf(v, 0) {
				return fmt.Errorf("line %d is %q, not a size; allowed: a number of MB "+
					"above 0 per line", n, envfile.Shorten(line))
			}
			if len(sizes) == maxSamples {
				return fmt.Errorf("the file has more than %d lines", maxSamples)
			}
			sizes = append(sizes, v)
			return nil
		})
		return sizes, err
	})
}

// binsOf reads a histogram, once.
func (f *File) binsOf(path string) ([]sizes.Bin, error) {
	c := &f.known
	c.mu.Lock()
	defer c.mu.Unlock()
	if bins, ok := c.bins[path]; ok || c.fault[path] != nil {
		return bins, c.fault[path]
	}
	bins, err := readBins(path)
	if err != nil {
		c.fault[path] = err
		return nil, err
	}
	c.bins[path] = bins
	return bins, nil
}

// eachLine calls read for each line of a file that is neither blank nor a comment, with its number,
// from 1.
func eachLine(path string, read func(n int, line string) error) error {
	file, _, err := openRegular(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := read(n, line); err != nil {
			return err
		}
	}
	return lines.Err()
}

// orderOf reads the permutations of the epochs: one line each, with numbers separated by blanks or
// commas.
func (f *File) orderOf(path string) ([][]int32, error) {
	c := &f.known
	c.mu.Lock()
	defer c.mu.Unlock()
	if order, ok := c.order[path]; ok || c.fault[path] != nil {
		return order, c.fault[path]
	}
	order, err := readOrder(path)
	if err != nil {
		c.fault[path] = err
		return nil, err
	}
	c.order[path] = order
	return order, nil
}

func readOrder(path string) ([][]int32, error) {
	file, _, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var order [][]int32
	var epoch []int32
	in := bufio.NewReaderSize(file, 1<<16)
	var word []byte
	line := 1
	number := func() error {
		if len(word) == 0 {
			return nil
		}
		k, err := strconv.ParseInt(string(word), 10, 32)
		if err != nil {
			return fmt.Errorf("line %d has %q, not the number of a sample", line,
				envfile.Shorten(string(word)))
		}
		epoch, word = append(epoch, int32(k)), word[:0]
		return nil
	}
	for {
		b, err := in.ReadByte()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		switch {
		case err == nil && b != '\n' && b != ' ' && b != ',' && b != '\t' && b != '\r':
			if word = append(word, b); len(word) > 64 {
				return nil, fmt.Errorf("line %d has %q, not the number of a sample", line,
					envfile.Shorten(string(word)))
			}
			continue
		default:
			if e := number(); e != nil {
				return nil, e
			}
		}
		if (err != nil || b == '\n') && len(epoch) > 0 {
			order, epoch = append(order, epoch), make([]int32, 0, len(epoch))
		}
		if err != nil {
			return order, nil
		}
		if b == '\n' {
			line++
		}
	}
}

// openRegular opens a regular file and returns its size.
func openRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	return file, info.Size(), err
}
