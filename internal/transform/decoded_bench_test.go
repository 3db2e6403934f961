package transform

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hdmlp/hdmlp/internal/transform/forms"
)

// BenchmarkForms measures what forms save, on the images in the folder HDMLP_BENCH_IMAGES, by
// suffix: training's and validation's transforms of each file, of its form, and of the form that
// holds what the first transforms make; the digests of forms are compared as stores do. All are
// measured in turns. It reports the medians per image, those of the ratios of a round over all
// files, what making a form takes, and how large the forms are.
func BenchmarkForms(b *testing.B) {
	dir := os.Getenv("HDMLP_BENCH_IMAGES")
	if dir == "" {
		b.Skip("set HDMLP_BENCH_IMAGES to a folder of images")
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*.*"))
	files := map[string][][]byte{}
	for _, name := range names {
		src, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		files[filepath.Ext(name)] = append(files[filepath.Ext(name)], src)
	}
	for suffix, all := range files {
		for _, list := range []string{
			"RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor()",
			"Resize(256), CenterCrop(224), ToTensor(), " +
				"Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))",
		} {
			b.Run(suffix+"/"+list[:6], func(b *testing.B) { benchmarkForms(b, all, list) })
		}
	}
}

// ofFiles are samples of one kind, made of files.
type ofFiles struct {
	name    string
	samples [][]byte
	kinds   []forms.Kind
	making  time.Duration
	bytes   int
	us      []float64 // of rounds
}

// formsOf returns the forms of files.
func formsOf(b *testing.B, name string, c *forms.Converter, files [][]byte) *ofFiles {
	of, begin := &ofFiles{name: name}, time.Now()
	for _, src := range files {
		form, err := c.Convert(nil, src)
		if err != nil {
			b.Fatal(err)
		}
		info, _ := forms.Read(form)
		of.samples, of.kinds = append(of.samples, form), append(of.kinds, info.Kind)
		of.bytes += len(form)
	}
	of.making = time.Since(begin)
	return of
}

func benchmarkForms(b *testing.B, files [][]byte, list string) {
	p := compiled(b, list)
	var c forms.Converter
	defer c.Close()
	read := &ofFiles{name: "file", samples: files, kinds: make([]forms.Kind, len(files))}
	for _, src := range files {
		read.bytes += len(src)
	}
	all := []*ofFiles{read, formsOf(b, "form", &c, files)}
	if p.Prefix() != nil {
		first := p.Prefix().Worker()
		defer first.Close()
		c.Makers = []*forms.Maker{{Prefix: p.Prefix().Prefix, Worker: first}}
		c.JPEGs = true
		all = append(all, formsOf(b, "result", &c, files))
	}
	w := p.Worker()
	defer w.Close()
	dst := make([]byte, p.Output().Bytes())
	round := func(of *ofFiles, epoch int) {
		begin := time.Now()
		for i, src := range of.samples {
			w.Form(of.kinds[i])
			if of.kinds[i] != forms.AsRead {
				if err := forms.Check(src); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Apply(dst, src, Key{Seed: 1, Epoch: epoch, Sample: i}); err != nil {
				b.Fatal(err)
			}
		}
		of.us = append(of.us, time.Since(begin).Seconds()/float64(len(files))*1e6)
	}
	for _, of := range all { // and do not count it
		round(of, 0)
		of.us = nil
	}
	for epoch := 0; b.Loop(); epoch++ {
		for _, of := range all {
			round(of, epoch)
		}
	}
	median := func(values []float64) float64 {
		slices.Sort(values)
		return values[len(values)/2]
	}
	for _, of := range all[1:] {
		ratios := make([]float64, len(of.us))
		for i, us := range of.us {
			ratios[i] = us / read.us[i]
		}
		b.ReportMetric(median(ratios), of.name+"/file")
		b.ReportMetric(of.making.Seconds()/float64(len(files))*1e6, of.name+"-making-us")
		b.ReportMetric(float64(of.bytes)/float64(read.bytes), of.name+"-size")
	}
	for _, of := range all {
		b.ReportMetric(median(of.us), of.name+"-us")
	}
}
