package hostile

import (
	"errors"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestOverloadIsReportedAsRateLimit has 100 clients order machines from a broker that processes two orders at a time.
// Each reply must be a machine, or 429 with Retry-After. None may report a lack of capacity, because there is enough.
// Bourse's own client, which waits as requested, must get its machine.
func TestOverloadIsReportedAsRateLimit(t *testing.T) {
	broker := servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0", "--orders", "2")
	startWorker(t, broker, "--cpus", "64", "--disk", "100GiB") // enough capacity for all 300 machines
	order := machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 1}, Init: bourse.Init{Exec: []string{"/bin/sleep", "1000"}},
	}}
	api := servertest.Client(t, broker)
	hasty := *api
	hasty.Retries = -1
	var wg sync.WaitGroup
	var mu sync.Mutex
	made, shed := 0, 0
	for range 100 {
		wg.Go(func() {
			for range 3 {
				_, err := hasty.Create(t.Context(), "default", order, "")
				mu.Lock()
				reply, _ := errors.AsType[*machinesapi.ReplyError](err)
				switch {
				case err == nil:
					made++
				case bourse.CodeOf(err) == bourse.CodeRateLimited && reply != nil && reply.Status == 429:
					shed++
				default:
					t.Errorf("order under load: %v, want success or rate_limited", err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if made == 0 || shed == 0 {
		t.Errorf("%d machines and %d replies with status 429, want some of both", made, shed)
	}
	patient := *api
	patient.Retries = 10
	if _, err := patient.Create(t.Context(), "default", order, ""); err != nil {
		t.Errorf("order by a client that waits after a 429: %v", err)
	}
}
