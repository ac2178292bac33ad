package deploy

import (
	"slices"

	"github.com/bourse-dev/bourse"
)

// VolumesLeft returns the volumes of the machines that the plan destroys, but for those
// that it destroys too: no machine has them then, and they keep what is on them. done
// reports whether a step was done; nil means that all are.
func (p *Plan) VolumesLeft(done func(step int) bool) []bourse.VolumeID {
	var out, gone []bourse.VolumeID
	for i := range p.Steps {
		s := &p.Steps[i]
		switch {
		case done != nil && !done(i):
		case s.Do == DestroyVolume:
			gone = append(gone, s.VolumeID)
		case s.Do == DestroyMachine && s.Former != nil:
			for _, m := range s.Former.Mounts {
				out = append(out, m.Volume)
			}
		}
	}
	return slices.DeleteFunc(out, func(id bourse.VolumeID) bool { return slices.Contains(gone, id) })
}
