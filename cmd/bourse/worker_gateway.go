package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"sync"

	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver/pull"
	"github.com/bourse-dev/bourse/gateway"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// pullGateway is a worker's gateway, which passes jobs to pollers.
type pullGateway struct {
	driver   *pull.Driver
	listener net.Listener
	tokens   *admission.TokenSet // tokens that callers must send; nil if they need none
	local    *loopback.Token     // the token that this server has created; nil if the operator has configured tokens
}

// openGateway opens the gateway's listener and driver if the gateway is enabled. It
// does not start them.
func (h *host) openGateway() (err error) {
	c := &h.config.Pull
	if !c.Enabled {
		return nil
	}
	var g pullGateway
	if c.TokenFile != "" {
		if g.tokens, err = admission.LoadTokens(c.TokenFile); err != nil {
			return err
		}
		h.watched = append(h.watched, g.tokens)
	}
	g.driver, err = pull.Open(pull.Config{Dir: filepath.Join(h.config.Data, "pull"), Lost: c.Lost, Log: h.log})
	if err != nil {
		return err
	}
	if g.listener, err = listen("the gateway", c.Listen); err != nil {
		return errors.Join(err, g.driver.Close())
	}
	h.gateway = &g
	h.extra = func(r *serve.Ready) { r.Pull = g.listener.Addr().String() }
	if g.local, err = h.clientToken(g.listener, c.TokenFile); err != nil || g.local == nil {
		return err
	}
	g.tokens, err = admission.OneToken(g.local.Text)
	h.extra = func(r *serve.Ready) { r.Pull, r.TokenFile = g.listener.Addr().String(), g.local.File }
	return err
}

// withdraw returns the stage that removes the token file that this server created.
func (g *pullGateway) withdraw() stage {
	if g == nil {
		return tokenStage(nil)
	}
	return tokenStage(g.local)
}

// close closes everything that openGateway opened.
func (g *pullGateway) close() error {
	if g == nil {
		return nil
	}
	_ = g.listener.Close() // the listener is already closed if its stage has run
	return g.driver.Close()
}

// watchPollers ends the jobs of pollers that have stopped calling.
func (h *host) watchPollers(ctx context.Context) error {
	if h.gateway == nil {
		<-ctx.Done()
		return nil
	}
	return h.gateway.driver.Run(ctx)
}

// serveGateway serves pollers and the clients that submit jobs.
func (h *host) serveGateway(ctx context.Context) error {
	if h.gateway == nil {
		<-ctx.Done()
		return nil
	}
	local := h.worker.Local()
	g := gateway.New(gateway.Config{
		Region: h.worker.Identity().Region, Driver: h.gateway.driver, Orders: local, Machines: local, Log: h.log,
	})
	var secure *tls.Config
	if h.creds != nil {
		secure = h.creds.Public()
	}
	stop := context.AfterFunc(ctx, g.Leave) // ends the calls that wait for work; the server would otherwise wait for them
	defer stop()
	var tidying sync.WaitGroup
	defer tidying.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tidying.Go(func() { _ = g.Run(ctx) }) // Run returns no errors
	return h.serve(ctx, h.gateway.listener, admission.RequireToken(g.Handler(), h.gateway.tokens), secure)
}
