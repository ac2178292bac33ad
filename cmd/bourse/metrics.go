package main

import (
	"crypto/tls"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/metrics"
)

// metrics is what a server of any role reports of itself.
func (s *server) metrics() *metrics.Server {
	source := metrics.Source{
		Self: s.self, Version: version().Release, Members: s.members, View: s.replica.View.Health,
	}
	if s.self.Role != bourse.RoleWorker { // whose directory does not watch them
		source.Absent = func() int {
			_, away := s.replica.directory.All()
			return len(away)
		}
	}
	if s.creds != nil {
		source.Expires = s.creds.Expires
	}
	return metrics.New(source)
}

// withMetrics serves the worker's metrics to scrapers, who see nothing else of it.
func (h *host) withMetrics(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admission.Require(api, bourse.ServerRoles()...))
	mux.Handle(fabric.WorkerMetrics.Path(), admission.Require(direct.Handler(h.self.ID, h.worker.Handler()), fabric.WorkerMetrics.Roles...))
	return mux
}

// scraperOf returns the scraper that a certificate names. No other names a client.
func scraperOf(shown *tls.ConnectionState) (endpoint.Identity, bool) {
	if len(shown.PeerCertificates) == 0 {
		return endpoint.Identity{}, false
	}
	who, err := admission.IdentityOf(shown.PeerCertificates[0])
	if err != nil || who.Role != bourse.RoleScraper {
		return endpoint.Identity{}, false
	}
	return endpoint.Identity{Name: string(who.ID), Scraper: true}, true
}
