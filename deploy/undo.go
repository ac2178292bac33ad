package deploy

import (
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// Undo returns a plan that reverts an unfinished release. Machines that the release updated return to their newest
// version from another release. Machines that it created are destroyed. Machines that it was about to destroy are put
// back into service. Machines that it destroyed are not recreated; instead, their replacements get the former config of
// another machine in the group. The state must contain the machines' versions.
func Undo(have State, id release.ID, pace Pace) Plan {
	s := newSurvey(&have, false)
	b := newBuilder("undo", have.App, s, Options{}, pace.Wait)
	if id == "" {
		b.refuse("no release to undo is specified")
		return b.plan
	}
	for _, m := range s.leftovers {
		b.retire(m, leftoverOf(m))
	}
	for _, group := range sortedKeys(s.units) {
		w := &work{made: map[bourse.MachineID]int{}}
		for _, u := range s.units[group] {
			b.undoUnit(w, u, &have, id)
		}
		for _, j := range w.jobs {
			if !j.stopped {
				w.count++
			}
			j.smoke, j.work = pace.Smoke, w
		}
		w.limit, w.group = pace.MaxUnavailable, &Group{Name: group, Smoke: pace.Smoke}
		b.rolling(w, nil, true)
	}
	b.finish()
	return b.plan
}

// undoUnit adds the jobs that revert the release for the machines of one unit.
func (b *builder) undoUnit(w *work, u *unit, have *State, id release.ID) {
	keep := u.root
	for _, m := range u.next {
		if m.release() != id {
			keep = m // an earlier unfinished plan created this replacement
		}
	}
	if !keep.lost() && keep.release() == id && former(have, keep, id) == nil && keep.replaces() == "" {
		b.retireUnit(u, nil, "the release created it")
		return
	}
	for _, m := range u.all() {
		if m != keep && m.release() == id {
			b.retire(m, "the release created it")
		}
	}
	if keep.lost() {
		if keep.release() == id {
			b.warn("machine %s in %s keeps the config of the release: its worker does not answer", keep, keep.Region)
		}
		return
	}
	j := &job{machine: keep, uncordon: keep.Cordoned && keep.paused(), why: "it serves again"}
	j.stopped = keep.standby() || keep.stoppedOnPurpose()
	switch {
	case keep.release() == id:
		to := former(have, keep, id)
		if to == nil {
			to = b.sibling(have, keep, id)
		}
		if to == nil {
			b.refuse("machine %s in %s replaced machine %s, which is destroyed, and no machine of group %s has its former config: deploy the former release instead", keep, keep.Region, keep.replaces(), keep.group)
			return
		}
		if !j.uncordon && to.Metadata[KeyPaused] != "" {
			c := *to
			c.Metadata = maps.Clone(to.Metadata)
			delete(c.Metadata, KeyPaused)
			to = &c
		}
		j.update, j.config, j.why = true, to, "it returns to "+releaseOf(to)
	case keep.paused():
		j.start = keep.down()
	default:
		return
	}
	w.jobs = append(w.jobs, j)
}

// releaseOf describes a config's version for display, including the release if the config has one.
func releaseOf(c *bourse.Config) string {
	if id := c.Metadata[KeyRelease]; id != "" {
		return "release " + id
	}
	return "its former version"
}

// former returns a machine's newest config that does not belong to the given release, or
// nil if there is none.
func former(have *State, m *machine, id release.ID) *bourse.Config {
	for _, v := range have.Versions[m.ID] {
		if v.Config != nil && v.Config.Metadata[KeyRelease] != string(id) {
			return v.Config
		}
	}
	return nil
}

// sibling returns the former config of another machine in m's group, but with m's own volume and standbys. It returns
// nil if no other machine has a suitable config.
func (b *builder) sibling(have *State, m *machine, id release.ID) *bourse.Config {
	for _, u := range b.survey.units[m.group] {
		for _, other := range u.all() {
			if other == m || other.standby() != m.standby() {
				continue
			}
			c := former(have, other, id)
			if c == nil && other.release() != id && !other.lost() {
				c = other.config
			}
			if c == nil || len(c.Mounts) != len(m.config.Mounts) {
				continue
			}
			out := *c
			out.Mounts, out.Standbys = m.config.Mounts, m.config.Standbys
			out.Metadata = preservedMetadata(c.Metadata)
			for _, key := range []string{KeyPlatform, KeyGroup, KeyRelease, KeyVersion} {
				if v, ok := c.Metadata[key]; ok {
					out.Metadata[key] = v
				}
			}
			return &out
		}
	}
	return nil
}

// Restart returns a plan that restarts the running machines of the named groups, a few at a
// time. If groups is empty, it restarts all running machines.
func Restart(have State, groups []string, pace Pace) Plan {
	s := newSurvey(&have, true)
	b := newBuilder("restart", have.App, s, Options{}, pace.Wait)
	for _, group := range b.selectGroups(groups) {
		var running []*machine
		for _, u := range s.units[group] {
			for _, m := range u.all() {
				switch {
				case m.lost():
					b.warn("machine %s in %s is not restarted: its worker does not answer", m, m.Region)
				case !m.down() && !m.standby():
					running = append(running, m)
				}
			}
		}
		addRolling(len(running), unavailable(pace.MaxUnavailable, len(running)), nil, func(i int, after []int) []int {
			id := b.add(stepOn(running[i], RestartMachine{}, "it restarts"), after...)
			return []int{b.add(stepOn(running[i], b.ready(pace.Smoke), "it has restarted"), id)}
		})
	}
	return b.plan
}

// selectGroups returns the named groups in sorted order, or all groups if none are named. It
// refuses the plan if a group does not exist.
func (b *builder) selectGroups(groups []string) []string {
	all := sortedKeys(b.survey.units)
	if len(groups) == 0 {
		return all
	}
	out := slices.Compact(slices.Sorted(slices.Values(groups)))
	for _, g := range out {
		if !slices.Contains(all, g) {
			b.refuse("the app has no machine of group %s; it has: %s", bourse.Quoted(g), listed(all))
		}
	}
	return out
}
