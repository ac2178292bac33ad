package device

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// GPU is one card of the host.
type GPU struct {
	Index int    // as the driver counts
	Bus   string // PCI address, "0000:65:00.0"
	UUID  string // "GPU-…"; empty when the driver does not say
	Model string // "NVIDIA L40S"
	Kind  string // the model in the words of orders: "l40s"
}

const (
	nvidiaCards = "driver/nvidia/gpus" // below /proc: a directory for each card, named by its PCI address
	maxCardFile = 1 << 16
)

// nvidia lists the cards that NVIDIA's driver has, in order of their PCI
// addresses, which is how it counts them. proc is the host's /proc. A host
// without the driver has none.
func nvidia(proc fs.FS) []GPU {
	cards, err := fs.ReadDir(proc, nvidiaCards)
	if err != nil {
		return nil
	}
	var out []GPU
	for _, card := range cards {
		text, err := fs.ReadFile(proc, path.Join(nvidiaCards, card.Name(), "information"))
		if err != nil || len(text) > maxCardFile {
			continue
		}
		g := parseCard(text)
		g.Bus = card.Name()
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b GPU) int { return cmp.Compare(a.Bus, b.Bus) })
	for i := range out {
		out[i].Index = i
	}
	return out
}

// parseCard reads the driver's file on a card: lines of "Name: value".
func parseCard(text []byte) GPU {
	var g GPU
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "Model":
			g.Model = value
		case "GPU UUID":
			if !strings.Contains(value, "?") { // the driver writes "?" before the card was first used
				g.UUID = value
			}
		}
	}
	g.Kind = kindOf(g.Model, 0)
	return g
}

// Smi runs nvidia-smi with these arguments and returns its output.
type Smi func(ctx context.Context, args ...string) ([]byte, error)

// ask completes cards with the output of nvidia-smi: the memory, which is
// part of some kinds' names, and the numbers by which the driver counts.
func ask(ctx context.Context, smi Smi, cards []GPU) []GPU {
	if smi == nil || len(cards) == 0 {
		return cards
	}
	out, err := smi(ctx, "--query-gpu=index,pci.bus_id,uuid,name,memory.total", "--format=csv,noheader,nounits")
	if err != nil {
		return cards // the driver's files suffice
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		index, bus, uuid, model, memory, ok := parseSmi(lines.Text())
		if !ok {
			continue
		}
		i := slices.IndexFunc(cards, func(g GPU) bool { return sameBus(g.Bus, bus) })
		if i < 0 {
			continue
		}
		cards[i] = GPU{Index: index, Bus: cards[i].Bus, UUID: uuid, Model: model, Kind: kindOf(model, memory)}
	}
	return cards
}

// parseSmi reads a line of nvidia-smi: index, bus, uuid, name, memory in MiB.
func parseSmi(line string) (index int, bus, uuid, model string, memory int64, ok bool) {
	fields := strings.Split(line, ",")
	if len(fields) != 5 {
		return 0, "", "", "", 0, false
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	n, err := parseCount(fields[0])
	if err != nil {
		return 0, "", "", "", 0, false
	}
	memory, err = parseCount(fields[4])
	if err != nil {
		memory = 0 // "[N/A]"
	}
	return int(n), fields[1], fields[2], fields[3], memory, true
}

// sameBus compares PCI addresses, whose domain has four digits or eight.
func sameBus(a, b string) bool {
	tail := func(s string) string {
		domain, rest, ok := strings.Cut(strings.ToLower(s), ":")
		if !ok {
			return s
		}
		return strings.TrimLeft(domain, "0") + ":" + rest
	}
	return tail(a) == tail(b)
}
