package deploy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// DefaultGroup is the process group of machines whose metadata does not name a group.
const DefaultGroup = "app"

// foreignGroups are process groups of temporary machines that other clients create. Plans
// ignore such machines.
var foreignGroups = []string{"fly_app_console", "fly_app_test_machine_command"}

// machine is one of the app's existing machines, with its known config.
type machine struct {
	*machinesapi.Machine
	config *bourse.Config // known part of the config; never nil
	group  string
}

func newMachine(m *machinesapi.Machine) *machine {
	out := &machine{Machine: m, config: m.Known()}
	if out.config == nil {
		out.config = &bourse.Config{}
	}
	out.group = GroupOf(out.config)
	return out
}

// GroupOf returns the process group of a machine. Older clients store it as process_group.
func GroupOf(c *bourse.Config) string {
	return cmp.Or(c.Metadata[KeyGroup], c.Metadata["process_group"], DefaultGroup)
}

// lost reports whether the machine cannot be changed because its worker does not answer.
func (m *machine) lost() bool {
	return m.Config == nil || m.HostStatus != "" && m.HostStatus != machinesapi.HostOK
}

// down reports whether the machine is stopped or suspended, or is about to be.
func (m *machine) down() bool {
	switch m.State {
	case bourse.StateStopped, bourse.StateSuspended, bourse.StateStopping, bourse.StateSuspending:
		return true
	default:
		return false
	}
}

// crashed reports whether the machine is stopped because its program failed.
func (m *machine) crashed() bool {
	return m.State == bourse.StateStopped && m.Exit != nil && !m.Exit.RequestedStop && m.Exit.ExitCode != 0
}

// stoppedOnPurpose reports whether the machine was stopped or suspended on purpose and therefore
// should not be started.
func (m *machine) stoppedOnPurpose() bool { return m.down() && !m.paused() && !m.crashed() }

// ready reports whether the machine is started and its checks pass.
func (m *machine) ready() bool {
	if m.State != bourse.StateStarted {
		return false
	}
	for _, c := range m.Checks {
		if c.Status != bourse.CheckPassing {
			return false
		}
	}
	return true
}

// serves reports whether the machine may receive requests.
func (m *machine) serves() bool { return !m.lost() && !m.down() && !m.Cordoned }

func (m *machine) standby() bool { return len(m.config.Standbys) > 0 }

func (m *machine) paused() bool { return m.config.Metadata[KeyPaused] != "" }

func (m *machine) release() release.ID { return release.ID(m.config.Metadata[KeyRelease]) }

func (m *machine) replaces() bourse.MachineID {
	return bourse.MachineID(m.config.Metadata[KeyReplaces])
}

// lastStart returns a string that identifies the machine's latest start.
func (m *machine) lastStart() string { return fmt.Sprintf("%s/%d", m.InstanceID, m.Starts) }

// copiedTo reports whether n mounts a fork of m's volume that contains all of m's data. This is the case if m is
// stopped and has not been started again since the fork was made.
func (m *machine) copiedTo(n *machine) bool {
	return m.State == bourse.StateStopped && n.config.Metadata[KeyCopies] == m.lastStart()
}

// String formats the machine's ID and name for display.
func (m *machine) String() string { return named(m.ID, m.Name) }

// unit consists of a machine and its replacements, which coexist only while a plan is unfinished. A unit counts as one
// machine in its group.
type unit struct {
	root *machine
	next []*machine // replacements, newest first
}

func (u *unit) all() []*machine { return append([]*machine{u.root}, u.next...) }

// survey contains an app's machines and volumes, sorted and grouped.
type survey struct {
	units     map[string][]*unit // by process group, sorted by region and id
	leftovers []*machine         // canaries and machines of release commands
	machines  map[bourse.MachineID]*machine
	foreign   []*machine            // machines that are not managed by deploys
	volumes   []*machinesapi.Volume // usable volumes that no machine mounts
	known     map[bourse.VolumeID]*machinesapi.Volume
}

// newSurvey builds a survey from a state. If all is set, units include machines that deploys
// do not manage.
func newSurvey(have *State, all bool) *survey {
	s := &survey{units: map[string][]*unit{}, machines: map[bourse.MachineID]*machine{}, known: map[bourse.VolumeID]*machinesapi.Volume{}}
	var mine []*machine
	for i := range have.Machines {
		m := newMachine(&have.Machines[i])
		switch {
		case m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying || slices.Contains(foreignGroups, m.group):
			continue
		case m.group == CommandGroup || m.config.Metadata[KeyCanary] != "":
			s.leftovers = append(s.leftovers, m)
		case m.config.Metadata[KeyPlatform] == Platform || all:
			mine = append(mine, m)
		default:
			s.foreign = append(s.foreign, m)
		}
		s.machines[m.ID] = m
	}
	slices.SortFunc(mine, compareMachines)
	slices.SortFunc(s.foreign, compareMachines)
	slices.SortFunc(s.leftovers, compareMachines)
	s.addUnits(mine)
	for i := range have.Volumes {
		v := &have.Volumes[i]
		s.known[v.ID] = v
		if v.State.Usable() && v.Machine == nil && (v.HostStatus == "" || v.HostStatus == machinesapi.HostOK) {
			s.volumes = append(s.volumes, v)
		}
	}
	slices.SortFunc(s.volumes, func(a, b *machinesapi.Volume) int { return cmp.Compare(a.ID, b.ID) })
	return s
}

func compareMachines(a, b *machine) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.ID, b.ID))
}

// addUnits groups machines into units. A machine belongs to the unit of the machine that it
// replaces.
func (s *survey) addUnits(mine []*machine) {
	units := map[bourse.MachineID]*unit{}
	for _, m := range mine {
		root := s.rootOf(m)
		u := units[root.ID]
		if u == nil {
			u = &unit{root: root}
			units[root.ID] = u
		}
		if m != root {
			u.next = append(u.next, m)
		}
	}
	for _, m := range mine { // iterate over mine to preserve its order
		if u := units[m.ID]; u != nil {
			slices.SortStableFunc(u.next, func(a, b *machine) int { return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID)) })
			s.units[m.group] = append(s.units[m.group], u)
		}
	}
}

// rootOf follows the chain of replaced machines that begins with m, and returns the last machine in it. The chain ends
// before a machine that no longer exists, is a leftover, or belongs to another group. If the chain is a cycle, rootOf
// returns m.
func (s *survey) rootOf(m *machine) *machine {
	at := m
	for range len(s.machines) {
		next := s.machines[at.replaces()]
		switch {
		case next == nil || next.group != at.group || slices.Contains(s.leftovers, next):
			return at
		case next == m:
			return m
		}
		at = next
	}
	return m
}

// replacementOf returns the replacement of a machine that no longer exists, or "" if there is none.
// If there are several, it returns the one with the smallest id.
func (s *survey) replacementOf(id bourse.MachineID) bourse.MachineID {
	for _, next := range sortedKeys(s.machines) {
		if s.machines[next].replaces() == id {
			return next
		}
	}
	return ""
}

// freeVolume returns a volume that has the given name and that no machine mounts, and removes the volume from
// s.volumes. It returns nil if there is no such volume. An empty region means any region.
func (s *survey) freeVolume(name string, in bourse.Region) *machinesapi.Volume {
	for i, v := range s.volumes {
		if v.Name == name && (in == "" || v.Region == in) {
			s.volumes = slices.Delete(s.volumes, i, i+1)
			return v
		}
	}
	return nil
}

// seen describes the surveyed machines, for [Plan].Seen.
func seen(s *survey) map[bourse.MachineID]Seen {
	if len(s.machines) == 0 {
		return nil
	}
	out := make(map[bourse.MachineID]Seen, len(s.machines))
	for id, m := range s.machines {
		out[id] = Seen{Instance: m.InstanceID, Name: m.Name, Cordoned: m.Cordoned, Paused: m.paused(), Lost: m.lost()}
	}
	return out
}

// named formats a machine's id and name.
func named(id bourse.MachineID, name string) string {
	if name == "" {
		return string(id)
	}
	return fmt.Sprintf("%s (%s)", id, name)
}
