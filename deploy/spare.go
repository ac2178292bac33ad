package deploy

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
)

// standbys returns what a spare stands by for: the machines that are in the places of
// those it did, or one that is kept when none is.
func (w *work) standbys(m *machine, c *bourse.Config) []bourse.MachineID {
	if len(c.Standbys) == 0 {
		return nil
	}
	var out []bourse.MachineID
	for _, id := range c.Standbys {
		if heir, ok := w.heirs[id]; ok && heir != m.ID && !slices.Contains(out, heir) {
			out = append(out, heir)
		}
	}
	if len(out) == 0 && w.first != "" {
		out = append(out, w.first)
	}
	if len(out) == 0 {
		return c.Standbys
	}
	return out
}

// standsByForAnother says why a spare has to change: another machine is made in place
// of one that it stands by for, or none of them stays.
func (w *work) standsByForAnother(c *bourse.Config) string {
	for i := range w.places {
		if id := w.places[i].replaces; slices.Contains(c.Standbys, id) {
			return fmt.Sprintf("it stands by for machine %s, which is replaced", id)
		}
	}
	if w.orphan(c.Standbys) && w.first == "" && len(w.places) > 0 {
		return "the machine that it stands by for goes"
	}
	return ""
}

// orphan reports whether no machine of these stays.
func (w *work) orphan(ids []bourse.MachineID) bool {
	return !slices.ContainsFunc(ids, func(id bourse.MachineID) bool { return w.heirs[id] != "" })
}

// standingBy returns the config of an update to s: of a machine that is made in place
// of one which it stands by for, the ID is not known yet.
func (b *builder) standingBy(s *Step, j *job) *bourse.Config {
	ids := j.config.Standbys
	if len(ids) == 0 {
		return j.config
	}
	var left []bourse.MachineID
	if j.work.orphan(ids) && j.work.newest != nil {
		s.StandbyOf, ids = j.work.newest, nil
	}
	for _, id := range ids {
		if made, ok := j.work.made[id]; ok && s.StandbyOf == nil {
			s.StandbyOf = &made
		} else {
			left = append(left, id)
		}
	}
	if s.StandbyOf == nil {
		return j.config
	}
	out := *j.config
	out.Standbys = left
	return &out
}
