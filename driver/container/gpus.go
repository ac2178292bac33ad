package container

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// GPUSources tells [DetectGPUs] where to look for GPUs. The zero value means the host itself.
type GPUSources struct {
	Proc  fs.FS    // default /proc
	Specs []string // directories of CDI specifications; default /etc/cdi and /var/run/cdi
	SMI   SMI      // default: the host's nvidia-smi, if it is installed
}

// SMI runs nvidia-smi with arguments and returns its output.
type SMI func(ctx context.Context, args ...string) ([]byte, error)

// GPU is one graphics card on the host.
type GPU struct {
	Index int    // the driver's number for the card
	Bus   string // PCI address, such as "0000:65:00.0"
	UUID  string // "GPU-…"; empty if the driver does not report it
	Model string // such as "NVIDIA L40S"
	Kind  string // the model in the form used in resource names, such as "l40s"
}

// GPUs is the result of [DetectGPUs].
type GPUs struct {
	Kinds   map[string][]string // CDI names by kind; each card has one name
	Unnamed []GPU               // cards without a CDI name, which machines cannot use
	Broken  []error             // one error for each unreadable CDI specification
}

const (
	nvidiaClass = "nvidia.com/gpu"
	nvidiaCards = "driver/nvidia/gpus" // directory below /proc with a subdirectory for each card, named after its PCI address
	maxCardFile = 1 << 16
)

// DetectGPUs finds the host's GPUs and their names in the Container Device Interface (CDI). Machines
// request GPUs by these names, which have the form "vendor.com/class=name". They are defined in CDI
// specifications, which the vendor's tools or the operator create. DetectGPUs does not open the cards'
// device files. If the host has GPUs, DetectGPUs runs nvidia-smi once and waits for it.
func DetectGPUs(ctx context.Context, s GPUSources) GPUs {
	if s.Proc == nil {
		s.Proc = os.DirFS("/proc")
	}
	if len(s.Specs) == 0 {
		s.Specs = cdi.DefaultSpecDirs
	}
	if s.SMI == nil {
		s.SMI = hostSMI()
	}
	cards := nvidiaGPUs(s.Proc)
	if len(cards) == 0 {
		return GPUs{}
	}
	cards = addSMI(ctx, s.SMI, cards)
	names, broken := deviceNames(s.Specs)
	found := GPUs{Kinds: map[string][]string{}, Broken: broken}
	for _, card := range cards {
		name, ok := nameOfGPU(card, names)
		if !ok || card.Kind == "" {
			found.Unnamed = append(found.Unnamed, card)
			continue
		}
		found.Kinds[card.Kind] = append(found.Kinds[card.Kind], name)
	}
	return found
}

// deviceNames returns the names of all devices that are defined in the given CDI directories, and an
// error for each unreadable specification.
func deviceNames(specs []string) ([]string, []error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(specs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, []error{err}
	}
	var broken []error
	for _, errs := range cache.GetErrors() {
		broken = append(broken, errs...)
	}
	return cache.ListDevices(), broken
}

// nameOfGPU returns a card's CDI name. CDI specifications name cards by number or UUID.
func nameOfGPU(card GPU, names []string) (string, bool) {
	for _, as := range []string{card.UUID, strconv.Itoa(card.Index)} {
		if name := nvidiaClass + "=" + as; as != "" && slices.Contains(names, name) {
			return name, true
		}
	}
	return "", false
}

// nvidiaGPUs returns the cards that NVIDIA's driver lists in proc, the host's /proc. The cards are
// sorted by PCI address, because the driver numbers them in that order.
func nvidiaGPUs(proc fs.FS) []GPU {
	cards, err := fs.ReadDir(proc, nvidiaCards)
	if err != nil { // the driver is not loaded
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

// parseCard parses the driver's description of a card, which consists of lines of the form "Name:
// value".
func parseCard(text []byte) GPU {
	var g GPU
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "Model":
			g.Model = value
		case "GPU UUID":
			if !strings.Contains(value, "?") { // the driver writes question marks until the card is first used
				g.UUID = value
			}
		}
	}
	g.Kind = kindOfGPU(g.Model, 0)
	return g
}

func hostSMI() SMI {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil
	}
	return func(ctx context.Context, args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, program, args...).Output()
	}
}

// addSMI replaces the cards' indices, UUIDs and models with those that nvidia-smi reports, and derives each card's Kind
// from its model and memory size. If nvidia-smi fails, it leaves the cards unchanged.
func addSMI(ctx context.Context, smi SMI, cards []GPU) []GPU {
	if smi == nil {
		return cards
	}
	out, err := smi(ctx, "--query-gpu=index,pci.bus_id,uuid,name,memory.total", "--format=csv,noheader,nounits")
	if err != nil {
		return cards // the data from the driver's files in /proc is sufficient
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		card, memory, ok := parseSMI(lines.Text())
		if !ok {
			continue
		}
		i := slices.IndexFunc(cards, func(g GPU) bool { return samePCIAddress(g.Bus, card.Bus) })
		if i < 0 {
			continue
		}
		card.Bus, card.Kind = cards[i].Bus, kindOfGPU(card.Model, memory)
		cards[i] = card
	}
	return cards
}

// parseSMI parses a line of nvidia-smi's output: index, bus, UUID, model, and memory in MiB.
func parseSMI(line string) (g GPU, memory int64, ok bool) {
	fields := strings.Split(line, ",")
	if len(fields) != 5 {
		return GPU{}, 0, false
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	index, err := strconv.Atoi(fields[0])
	if err != nil {
		return GPU{}, 0, false
	}
	memory, err = strconv.ParseInt(fields[4], 10, 64)
	if err != nil { // memory may be "[N/A]"
		memory = 0
	}
	return GPU{Index: index, Bus: fields[1], UUID: fields[2], Model: fields[3]}, memory, true
}

// samePCIAddress reports whether two PCI addresses identify the same device. In each address, the domain
// may be written with four or eight digits.
func samePCIAddress(a, b string) bool {
	normal := func(s string) string {
		domain, rest, ok := strings.Cut(strings.ToLower(s), ":")
		if !ok {
			return s
		}
		return strings.TrimLeft(domain, "0") + ":" + rest
	}
	return normal(a) == normal(b)
}

// kindOfGPU converts a model name to a Kind: "NVIDIA A100-PCIE-40GB" becomes "a100-pcie-40gb", and
// "NVIDIA L40S" becomes "l40s". A100 and H100 cards come in different memory sizes. If the name of such
// a model does not contain the size, kindOfGPU appends it. memory is in MiB, or 0 if it is unknown.
func kindOfGPU(model string, memory int64) string {
	name := strings.ToLower(strings.TrimSpace(model))
	name = strings.TrimPrefix(name, "nvidia ")
	name = strings.TrimPrefix(name, "tesla ")
	var b strings.Builder
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	kind := strings.Trim(b.String(), "-")
	sized := strings.HasPrefix(kind, "a100") || strings.HasPrefix(kind, "h100")
	if sized && !strings.HasSuffix(kind, "gb") && memory > 0 {
		kind += fmt.Sprintf("-%dgb", (memory+512)/1024)
	}
	const maxLength = 63 // maximum length of a resource's name
	return strings.Trim(kind[:min(len(kind), maxLength)], "-")
}
