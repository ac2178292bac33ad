package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A server without certificates has nothing to renew, and a broker has nothing to record. The
// stages must not return in that case, because this would stop the server.
func TestStagesWithoutCertificates(t *testing.T) {
	for _, stage := range []stage{new(server).renewal(), new(server).recordStage()} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- stage.run(ctx) }()
			time.Sleep(24 * time.Hour)
			select {
			case err := <-ended:
				t.Fatalf("the stage %s returned: %v", stage.name, err)
			default:
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
