package device

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Config is where to look. The zero value is the host itself.
type Config struct {
	Proc  fs.FS    // default /proc
	Specs []string // directories of CDI specifications; default /etc/cdi and /var/run/cdi
	Smi   Smi      // default: the host's nvidia-smi, if it has one
}

// Found is what a host has.
type Found struct {
	Kinds   map[string][]string // CDI names by kind of GPU, each card once
	Unnamed []GPU               // cards that no specification names: no machine can have them
	Broken  []error             // specifications that cannot be read
}

const nvidiaClass = "nvidia.com/gpu"

// Detect looks for the host's GPUs. It opens no card, and takes the time of one
// nvidia-smi where there are cards.
func Detect(ctx context.Context, c Config) Found {
	if c.Proc == nil {
		c.Proc = os.DirFS("/proc")
	}
	if len(c.Specs) == 0 {
		c.Specs = cdi.DefaultSpecDirs
	}
	if c.Smi == nil {
		c.Smi = hostSmi()
	}
	cards := nvidia(c.Proc)
	if len(cards) == 0 { // then the specifications are not needed
		return Found{}
	}
	cards = ask(ctx, c.Smi, cards)
	names, broken := Names(c.Specs)
	found := Found{Kinds: map[string][]string{}, Broken: broken}
	for _, card := range cards {
		name, ok := nameOf(card, names)
		if !ok || card.Kind == "" {
			found.Unnamed = append(found.Unnamed, card)
			continue
		}
		found.Kinds[card.Kind] = append(found.Kinds[card.Kind], name)
	}
	return found
}

// Names lists the devices that the specifications in these directories name,
// sorted, and what is wrong with the others.
func Names(specs []string) ([]string, []error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(specs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, []error{err}
	}
	var broken []error
	for _, errs := range cache.GetErrors() {
		broken = append(broken, errs...)
	}
	names := cache.ListDevices()
	slices.Sort(names)
	return names, broken
}

// nameOf finds a card's name: specifications number the cards, or call them by
// their UUIDs.
func nameOf(card GPU, names []string) (string, bool) {
	for _, as := range []string{card.UUID, strconv.Itoa(card.Index)} {
		if name := nvidiaClass + "=" + as; as != "" && slices.Contains(names, name) {
			return name, true
		}
	}
	return "", false
}

func hostSmi() Smi {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil
	}
	return func(ctx context.Context, args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, program, args...).Output()
	}
}
