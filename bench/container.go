package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/bourse-dev/bourse"
)

// benchContainer: create + start of a cached image through the public API
// against "ctr run -d" of the same image on the same containerd, one after the
// other and by 16 at once. Rounds alternate.
func benchContainer(ctx context.Context, lab *Lab, out Figures) error {
	return inHarness(ctx, lab, func(h *harness) error {
		y, err := yardOf(h, lab, 1)
		if err != nil {
			return err
		}
		if err := y.prepare(); err != nil {
			return err
		}
		var ours, theirs samples
		for i := range 32 {
			var id bourse.MachineID
			if err := ours.measure(func() (err error) { id, err = y.create(y.small.Ref()); return }); err != nil {
				return err
			}
			if err := y.destroy(id); err != nil {
				return err
			}
			breathe(ctx)
			name := fmt.Sprintf("floor-%d", i)
			if err := theirs.measure(func() error { return y.ctrRun(name) }); err != nil {
				return err
			}
			if err := y.ctrRemove(name); err != nil {
				return err
			}
			breathe(ctx)
		}
		out["container_start_ms"] = ms(ours.quantile(0.5))
		out["floor_ctr_run_ms"] = ms(theirs.quantile(0.5))
		out["container_start_ratio"] = ms(ours.quantile(0.5)) / ms(theirs.quantile(0.5))
		return y.atOnce(out)
	})
}

// atOnce starts 16 at a time.
func (y *yard) atOnce(out Figures) error {
	const many, rounds = 16, 12
	var ours, theirs []float64
	for round := range rounds {
		ids := make([]bourse.MachineID, many)
		rate, err := together(many, many, func(i int) (err error) { ids[i], err = y.create(y.small.Ref()); return })
		if err != nil {
			return err
		}
		ours = append(ours, rate)
		if _, err := together(4, many, func(i int) error { return y.destroy(ids[i]) }); err != nil {
			return err
		}
		name := func(i int) string { return fmt.Sprintf("many-%d-%d", round, i) }
		if rate, err = together(many, many, func(i int) error { return y.ctrRun(name(i)) }); err != nil {
			return err
		}
		theirs = append(theirs, rate)
		if _, err := together(4, many, func(i int) error { return y.ctrRemove(name(i)) }); err != nil {
			return err
		}
	}
	out["container_16_rps"] = median(ours)
	out["floor_ctr_16_rps"] = median(theirs)
	out["container_16_ratio"] = median(ours) / median(theirs)
	return nil
}

// prepare has both sides pull the image before anything is measured.
func (y *yard) prepare() error {
	if err := y.ctr("images", "pull", "--plain-http", y.small.Ref()); err != nil {
		return err
	}
	id, err := y.create(y.small.Ref())
	if err != nil {
		return err
	}
	return y.destroy(id)
}

func (y *yard) ctrRun(name string) error {
	return y.ctr(append([]string{"run", "-d", "--memory-limit", "67108864", y.small.Ref(), name}, sleeper...)...)
}

func (y *yard) ctrRemove(name string) error {
	if err := y.ctr("tasks", "rm", "-f", name); err != nil {
		return err
	}
	return y.ctr("containers", "rm", name)
}

func (y *yard) ctr(args ...string) error {
	c := exec.CommandContext(y.ctx, "ctr", append([]string{"-a", y.containerd.Address, "-n", "floor"}, args...)...)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %v: %w: %s", args, err, text)
	}
	return nil
}
