package worker

import (
	"maps"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
)

// drivers names the drivers whose machines this worker takes, by the kinds of
// their images.
func (w *Worker) drivers() []string {
	names := []string{}
	if w.cfg.Container != nil {
		names = append(names, string(bourse.RegistryImage))
	}
	if !w.cfg.NoHost {
		names = append(names, string(bourse.HostImage))
	}
	if w.cfg.Pull != nil {
		names = append(names, string(bourse.PollerImage))
	}
	return names
}

// learnLabels gathers the worker's facts: those of its parts, its drivers' and
// the operator's; the later ones win. A driver knows its own once it has
// recovered.
func (w *Worker) learnLabels() {
	shared := map[string]string{}
	if w.cfg.Network != nil {
		maps.Copy(shared, w.cfg.Network.Labels())
	}
	if w.cfg.Volumes != nil {
		maps.Copy(shared, w.cfg.Volumes.Labels())
	}
	with := func(sets ...map[string]string) map[string]string {
		out := maps.Clone(shared)
		for _, set := range append(sets, w.cfg.Capacity.Labels) {
			maps.Copy(out, set)
		}
		return out
	}
	host := w.cfg.Driver.Labels()
	if w.cfg.NoHost {
		host = nil
	}
	image, all := with(), with(host)
	if w.cfg.Container != nil {
		image = with(w.cfg.Container.Labels())
		if w.cfg.Volumes != nil {
			image[admit.LabelDiskLimit] = "loop"
		}
		all = with(image, host)
	}
	w.host.Labels.Store(&admit.Labels{All: all, Of: map[bourse.ImageKind]map[string]string{
		bourse.HostImage: with(host), bourse.RegistryImage: image, bourse.PollerImage: w.cfg.Capacity.Labels,
	}})
}
