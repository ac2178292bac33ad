package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A server without certificates has nothing to renew. The stage must not return in that
// case, because this would stop the server.
func TestRenewalWithoutCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- new(server).renewal().run(ctx) }()
		time.Sleep(24 * time.Hour)
		select {
		case err := <-ended:
			t.Fatalf("the stage has ended: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
