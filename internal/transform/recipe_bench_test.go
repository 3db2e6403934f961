package transform

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkRecipes measures what recipes cost per image, of the JPEGs in the folder
// HDMLP_BENCH_IMAGES.
func BenchmarkRecipes(b *testing.B) {
	const normalize = "ToTensor(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))"
	const flipped = "RandomResizedCrop(224), RandomHorizontalFlip(), "
	names, _ := filepath.Glob(filepath.Join(os.Getenv("HDMLP_BENCH_IMAGES"), "*.jpg"))
	if len(names) == 0 {
		b.Skip("set HDMLP_BENCH_IMAGES to a folder of JPEGs")
	}
	files := make([][]byte, len(names))
	for i, name := range names {
		var err error
		if files[i], err = os.ReadFile(name); err != nil {
			b.Fatal(err)
		}
	}
	for name, list := range map[string]string{
		"crop":        flipped + normalize,
		"erase":       flipped + normalize + ", RandomErasing(1)",
		"noise":       flipped + normalize + `, RandomErasing(1, value="random")`,
		"trivial":     flipped + "TrivialAugmentWide(), " + normalize + ", RandomErasing(0.1)",
		"rand":        flipped + "RandAugment(), " + normalize,
		"autoaugment": flipped + "AutoAugment(), " + normalize,
		"simclr": flipped + "RandomApply([ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8), " +
			"RandomGrayscale(0.2), GaussianBlur(23), " + normalize,
	} {
		b.Run(name, func(b *testing.B) {
			w := compiled(b, list).Worker()
			defer w.Close()
			dst := make([]byte, w.program.Output().Bytes())
			for i := 0; b.Loop(); i++ {
				key := Key{Seed: 1, Epoch: i / len(files), Sample: i % len(files)}
				if err := w.Apply(dst, files[key.Sample], key); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
