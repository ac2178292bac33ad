package image_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// BenchmarkPullShared pulls a missing image of 12 MB, for one order and for twenty concurrent orders. The latter should
// not take much longer.
func BenchmarkPullShared(b *testing.B) {
	h := newHost(b, containerdtest.Start(b))
	r := registrytest.Start(b, registrytest.Options{})
	p := r.Push(b, "web:v1", registrytest.Image{Layers: random(4<<20, 4<<20, 4<<20)})
	s := h.open(b, nil)
	for _, orders := range []int{1, 20} {
		b.Run(fmt.Sprintf("orders=%d", orders), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var wg sync.WaitGroup
				for range orders {
					wg.Go(func() {
						ref, err := s.Resolve(b.Context(), "", p.Name)
						if err == nil {
							_, err = s.Pull(b.Context(), "", ref, nil)
						}
						if err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				if err := s.Remove(b.Context(), p.Digest); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkMissing measures Missing, which is called for every quote for an image.
func BenchmarkMissing(b *testing.B) {
	h := newHost(b, containerdtest.Start(b))
	r := registrytest.Start(b, registrytest.Options{})
	here := r.Push(b, "web:v1", registrytest.Image{Layers: random(1000)})
	known := r.Push(b, "api:v1", registrytest.Image{Layers: random(1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000)})
	s := h.open(b, nil)
	pull(b, s, here.Name)
	if _, err := s.Resolve(b.Context(), "", known.Name); err != nil {
		b.Fatal(err)
	}
	for name, image := range map[string]string{"here": here.Name, "known": known.Name, "unknown": "registry.test/x:v1"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Missing("", image)
			}
		})
	}
}
