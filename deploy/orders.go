package deploy

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Order is what a plan will ask of the exchange: machines that are alike, in one
// region; or more than a machine has now, on its own worker.
type Order struct {
	Config *bourse.Config // as an order has it: of the metadata nothing matters
	Region bourse.Region  // "": any
	Count  int
	Steps  []int // that make or change them

	// Worker has the machine that grows, and More is by how much: what has to be free
	// there. They are empty for machines that are made.
	Worker bourse.WorkerID
	More   *bourse.Guest
	// Pinned is the volume that the machine mounts: only its worker can fill the order.
	Pinned bourse.VolumeID
}

// Orders returns what the plan will ask of the exchange, in the order of its steps: to
// ask for quotes, or to reserve it. Machines that are not started take nothing.
func (p *Plan) Orders() []Order {
	var out []Order
	for i := range p.Steps {
		s := &p.Steps[i]
		switch {
		case s.Config == nil || s.Stopped:
		case s.Do == MakeMachine || s.Do == RunCommand:
			order := Order{Config: s.Config, Region: s.In, Count: 1, Steps: []int{i}}
			if len(s.Config.Mounts) > 0 {
				order.Pinned = s.Config.Mounts[0].Volume
			}
			if n := slices.IndexFunc(out, func(o Order) bool { return o.alike(&order) }); n >= 0 {
				out[n].Count, out[n].Steps = out[n].Count+1, append(out[n].Steps, i)
			} else {
				out = append(out, order)
			}
		case s.Do == UpdateMachine && s.Former != nil:
			if more := grown(guestOf(s.Former), guestOf(s.Config)); more != nil {
				out = append(out, Order{Config: s.Config, Region: s.In, Count: 1, Steps: []int{i}, Worker: p.Seen[s.Machine].Worker, More: more})
			}
		}
	}
	return out
}

// alike reports whether o and other ask for the same, so that one question is enough.
func (o *Order) alike(other *Order) bool {
	if o.Worker != "" || o.Region != other.Region || o.Pinned != "" || other.Pinned != "" || o.Config.Image != other.Config.Image {
		return false
	}
	if guestOf(o.Config) != guestOf(other.Config) || len(o.Config.Mounts) != len(other.Config.Mounts) || len(o.Config.Requirements) != len(other.Config.Requirements) {
		return false
	}
	for name, r := range o.Config.Requirements {
		if other.Config.Requirements[name] != r {
			return false
		}
	}
	return true
}

// grown returns what a larger guest has more than a smaller one, nil for nothing. Cpus of
// another kind are all more.
func grown(from, to bourse.Guest) *bourse.Guest {
	more := bourse.Guest{CPUKind: to.CPUKind, CPUs: to.CPUs, MemoryMB: max(0, to.MemoryMB-from.MemoryMB), GPUs: to.GPUs, GPUKind: to.GPUKind}
	if from.CPUKind == to.CPUKind {
		more.CPUs = max(0, to.CPUs-from.CPUs)
	}
	if from.GPUKind == to.GPUKind {
		more.GPUs = max(0, to.GPUs-from.GPUs)
	}
	if more.CPUs == 0 && more.MemoryMB == 0 && more.GPUs == 0 {
		return nil
	}
	return &more
}

// Quote is what the exchange says to an [Order]: for how many of its machines there is
// room now, and why not for more.
type Quote struct {
	Room int
	Why  string
}

// WithQuotes returns the plan with the steps marked that would not find room, and
// refused if there are any. Quotes are in the order of [Plan.Orders]; an order without one
// is not judged.
func (p *Plan) WithQuotes(quotes []Quote) Plan {
	out := *p
	out.Steps, out.Refused = slices.Clone(p.Steps), slices.Clone(p.Refused)
	for i, o := range p.Orders() {
		if i >= len(quotes) || quotes[i].Room >= o.Count {
			continue
		}
		room := max(0, quotes[i].Room)
		for _, id := range o.Steps[room:] {
			out.Steps[id].NoRoom = quotes[i].Why
			if quotes[i].Why == "" {
				out.Steps[id].NoRoom = "no worker has room for it"
			}
		}
		out.Refused = append(out.Refused, refusedRoom(&p.Steps[o.Steps[0]], &o, room, quotes[i].Why))
	}
	return out
}

func refusedRoom(s *Step, o *Order, room int, why string) string {
	text := fmt.Sprintf("there is room for %d of %s of group %s%s", room, machinesOf(o.Count), s.Group, inRegion(o.Region))
	switch {
	case o.Worker != "":
		text = fmt.Sprintf("machine %s in %s cannot grow: there is no room on worker %s", s.Machine, s.In, o.Worker)
	case s.Do == RunCommand:
		text = "there is no room for the release command"
	case o.Pinned != "":
		text = fmt.Sprintf("there is no room for a machine of group %s with volume %s", s.Group, o.Pinned)
	}
	if why != "" {
		text += ": " + why
	}
	return text
}
