package machines

import (
	"fmt"
	"math/rand/v2"
)

var (
	adjectives = []string{
		"amber", "bold", "brisk", "calm", "clear", "cold", "crisp", "dark", "deep", "dry", "early", "fair", "fast", "fresh", "gentle",
		"green", "high", "icy", "keen", "late", "light", "lively", "long", "loud", "mild", "misty", "neat", "noble", "polar", "proud",
		"quick", "quiet", "rapid", "red", "sharp", "silent", "small", "snowy", "solid", "still", "sunny", "swift", "tall", "warm", "wild", "young",
	}
	nouns = []string{
		"anchor", "bay", "beach", "bird", "breeze", "brook", "canal", "cloud", "coast", "creek", "dawn", "delta", "dune", "dusk", "field",
		"fjord", "flower", "fog", "forest", "frost", "glade", "harbor", "hill", "island", "lake", "leaf", "meadow", "moon", "morning", "mountain",
		"ocean", "paper", "peak", "pine", "pond", "rain", "reef", "river", "sea", "shore", "sky", "snow", "star", "stone", "stream", "sun",
		"surf", "tide", "tree", "valley", "water", "wave", "wind", "wood",
	}
)

// randomName makes up a machine's name as the Machines API does:
// adjective-noun-NNNN.
func randomName() string {
	return fmt.Sprintf("%s-%s-%04d", adjectives[rand.IntN(len(adjectives))], nouns[rand.IntN(len(nouns))], rand.IntN(10000))
}
