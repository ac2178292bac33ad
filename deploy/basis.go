package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
)

// seen returns what is known of each machine that counts.
func seen(s *survey) map[bourse.MachineID]Seen {
	if len(s.machines) == 0 {
		return nil
	}
	out := make(map[bourse.MachineID]Seen, len(s.machines))
	for id, m := range s.machines {
		out[id] = Seen{
			Instance: m.InstanceID, Name: m.Name, Group: m.group, Region: m.Region, Worker: m.Worker,
			Down: m.down(), Cordoned: m.Cordoned, Lost: m.lost(), Replaces: m.replaces(), Marks: Marks(m.config.Metadata),
		}
	}
	return out
}

// Marks returns what plans have noted in a machine's metadata beside its group and what it replaces, as
// "key=value key=value" in a fixed order: they change without a new version of the machine.
func Marks(metadata map[string]string) string {
	var out []string
	for _, key := range []string{KeyPlatform, KeyRelease, KeyVersion, KeyCanary, KeyPaused} {
		if v := metadata[key]; v != "" {
			out = append(out, key+"="+v)
		}
	}
	return strings.Join(out, " ")
}

// basis identifies what a plan is made of.
func basis(parts ...any) string {
	raw, err := json.Marshal(parts)
	if err != nil { // a number that JSON has no spelling for
		raw = []byte(err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// Check returns what is no longer as it was when the plan was made, a sentence each; none
// when it still fits.
func (p *Plan) Check(have State) []string {
	now := seen(look(&have, true))
	var out []string
	for _, id := range sortedKeys(p.Seen) {
		was := p.Seen[id]
		is, ok := now[id]
		if !ok {
			out = append(out, fmt.Sprintf("machine %s of group %s in %s is gone", named(id, was.Name), was.Group, was.Region))
			continue
		}
		out = append(out, was.changed(id, &is)...)
	}
	for _, id := range sortedKeys(now) {
		if _, ok := p.Seen[id]; !ok {
			is := now[id]
			out = append(out, fmt.Sprintf("machine %s of group %s in %s is new", named(id, is.Name), is.Group, is.Region))
		}
	}
	return append(out, p.checkVolumes(&have)...)
}

func named(id bourse.MachineID, name string) string {
	if name == "" {
		return string(id)
	}
	return fmt.Sprintf("%s (%s)", id, name)
}

// changed says in what a machine is another one now.
func (s *Seen) changed(id bourse.MachineID, is *Seen) []string {
	var out []string
	say := func(changed bool, format string, args ...any) {
		if changed {
			out = append(out, fmt.Sprintf("machine %s "+format, append([]any{named(id, is.Name)}, args...)...))
		}
	}
	say(s.Instance != is.Instance, "has been updated: its version is %s, was %s", is.Instance, s.Instance)
	say(s.Group != is.Group, "is of group %s, was of %s", is.Group, s.Group)
	say(!s.Down && is.Down, "has been stopped")
	say(s.Down && !is.Down, "has been started")
	say(!s.Cordoned && is.Cordoned, "has been cordoned")
	say(s.Cordoned && !is.Cordoned, "has been uncordoned")
	say(!s.Lost && is.Lost, "cannot be reached: its worker does not answer")
	say(s.Lost && !is.Lost, "can be reached again")
	say(s.Worker != is.Worker, "is on worker %s, was on %s", is.Worker, s.Worker)
	say(s.Replaces != is.Replaces, "takes the place of %q, was of %q", is.Replaces, s.Replaces)
	say(s.Marks != is.Marks, "is marked with %q, was with %q: another plan was at work on it", is.Marks, s.Marks)
	return out
}

// checkVolumes says which volumes that the plan needs are not there, or used by others.
func (p *Plan) checkVolumes(have *State) []string {
	free := map[bourse.VolumeID]*bourse.MachineID{}
	there := map[bourse.VolumeID]bool{}
	for i := range have.Volumes {
		v := &have.Volumes[i]
		there[v.ID], free[v.ID] = v.State.Usable(), v.Machine
	}
	var out []string
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Do != MakeMachine || s.Config == nil || s.VolumeOf != nil {
			continue
		}
		for _, m := range s.Config.Mounts {
			switch {
			case !there[m.Volume]:
				out = append(out, fmt.Sprintf("volume %s is gone", m.Volume))
			case free[m.Volume] != nil:
				out = append(out, fmt.Sprintf("volume %s is attached to machine %s now", m.Volume, *free[m.Volume]))
			}
		}
	}
	return out
}
