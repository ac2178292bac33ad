package main

import (
	"context"
	"os"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/loopback"
)

const natsTimeout = 10 * time.Second // time limit for the server's start

// serveNATS runs a NATS server until ctx is done.
func serveNATS(ctx context.Context, c serve.NATSServerConfig) error {
	port := int(c.Listen.Port())
	if port == 0 {
		port = natsserver.RANDOM_PORT
	}
	options := natsserver.Options{Host: c.Listen.Addr().String(), Port: port, NoSigs: true, NoLog: true}
	if c.Cluster != "" {
		secret, err := loopback.SecretOf(os.Getenv, c.Cluster)
		if err != nil {
			return err
		}
		options.Authorization = secret.Text("nats")
	}
	s, err := natsserver.NewServer(&options)
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "NATS: %w", err)
	}
	go s.Start() // Start returns after Shutdown
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(natsTimeout) {
		return bourse.Errorf(bourse.CodeConflict, "NATS cannot listen on %s", c.Listen)
	}
	ready := serve.ServerConfig{ReadyFile: c.ReadyFile}
	withdraw, err := ready.Announce(os.Stdout, serve.Ready{ID: "nats", Role: serve.RoleNATS, API: s.Addr().String(), PID: os.Getpid()})
	if err != nil {
		return err
	}
	defer withdraw()
	<-ctx.Done()
	return nil
}
