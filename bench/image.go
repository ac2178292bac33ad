package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	imageBytes = 48 << 20 // of an image that no one has
	orders     = 20       // for one image at once
	pulls      = 9        // of each kind: the disk makes single ones differ by a fifth
)

// benchImage: what it is worth to fill an order where its image is, and that
// many orders for one image pull it once.
func benchImage(ctx context.Context, lab *Lab, out Figures) error {
	return inHarness(ctx, lab, func(h *harness) error {
		y, err := yardOf(h, lab, 1)
		if err != nil {
			return err
		}
		if err := y.prepare(); err != nil {
			return err
		}
		var hit, miss samples
		for i := range 3 {
			fresh := y.large("hit", i)
			for _, into := range []*samples{&miss, &hit} {
				var id bourse.MachineID
				if err := into.measure(func() (err error) { id, err = y.create(fresh.Ref()); return }); err != nil {
					return err
				}
				if err := y.destroy(id); err != nil {
					return err
				}
			}
		}
		out["image_hit_start_ms"] = ms(hit.quantile(0.5))
		out["image_miss_start_ms"] = ms(miss.quantile(0.5))
		out["image_hit_start_gain"] = ms(miss.quantile(0.5)) / ms(hit.quantile(0.5))
		return y.shared(out)
	})
}

// large pushes an image of bytes that nothing has seen before.
func (y *yard) large(what string, i int) registrytest.Pushed {
	seed := uint64(time.Now().UnixNano()) + uint64(i)
	return y.registry.Push(y, fmt.Sprintf("%s-%d:1", what, i), registrytest.Image{
		Layers: []registrytest.Layer{registrytest.Busybox(y), registrytest.Random(seed, imageBytes)},
	})
}

// shared compares what one pull and what many orders for one image cost: bytes
// from the registry and time until the image is there.
func (y *yard) shared(out Figures) error {
	var alone, together20 samples
	var bytesAlone, bytesTogether int64
	for i := range pulls {
		one := y.large("one", i)
		y.registry.ResetStats()
		ids := make([]bourse.MachineID, orders+1) // destroyed when the time has been taken
		if err := alone.measure(func() (err error) { ids[orders], err = y.pull(one.Ref()); return }); err != nil {
			return err
		}
		bytesAlone += y.registry.Stats().BlobBytes
		many := y.large("many", i)
		y.registry.ResetStats()
		if err := together20.measure(func() error {
			_, err := together(orders, orders, func(n int) (err error) { ids[n], err = y.pull(many.Ref()); return })
			return err
		}); err != nil {
			return err
		}
		for _, id := range ids {
			if err := y.destroy(id); err != nil {
				return err
			}
		}
		bytesTogether += y.registry.Stats().BlobBytes
	}
	out["pull_one_ms"] = ms(alone.quantile(0.5))
	out["pull_shared_ms"] = ms(together20.quantile(0.5))
	out["pull_shared_ratio"] = ms(together20.quantile(0.5)) / ms(alone.quantile(0.5))
	out["pull_shared_bytes_ratio"] = float64(bytesTogether) / float64(bytesAlone)
	return nil
}

// pull orders a machine of the image that is not to be started: the order is
// filled when the image is there.
func (y *yard) pull(image string) (bourse.MachineID, error) {
	req := contained(image)
	req.SkipLaunch = true
	m, err := y.client.Create(y.ctx, app, req, "")
	if err != nil {
		return "", err
	}
	_, err = y.client.Wait(y.ctx, app, m.ID, machinesapi.WaitMachine{States: []string{string(bourse.StateStopped)}})
	return m.ID, err
}
