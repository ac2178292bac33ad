package edge

import (
	"crypto/tls"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// tlsOf returns the TLS configuration of an HTTP listener. Each handshake uses the options of the service selected by
// the client's host name and the port.
func (e *Edge) tlsOf(port int) *tls.Config {
	config := e.Certificates.tlsConfig(workload.TLSOptions{}, true)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, acmeALPN) {
			return nil, nil
		}
		if t, err := e.Routes.Find(nameOf(hello), port); err == nil {
			return e.Certificates.tlsConfig(t.Port.TLS, true), nil
		}
		return nil, nil // no such service: continue with the name's certificate; the request will get a 404
	}
	return config
}

// tlsOfTarget returns the TLS configuration of a stream.
func (e *Edge) tlsOfTarget(t *route.Target) *tls.Config {
	config := e.Certificates.tlsConfig(t.Port.TLS, false)
	if t.Port.Has(workload.HandlerPGTLS) && len(config.NextProtos) == 0 {
		config.NextProtos = []string{"postgresql"} // required by PostgreSQL clients that begin with the TLS handshake
	}
	return config
}

// tlsConfig returns the TLS configuration for a service with the given options. If web is set, the default ALPN
// protocols are h2 and http/1.1.
func (c *Certificates) tlsConfig(o workload.TLSOptions, web bool) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: slices.Clone(o.ALPN)}
	if web && len(config.NextProtos) == 0 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	if len(o.Versions) > 0 && !slices.Contains(o.Versions, "TLSv1.2") {
		config.MinVersion = tls.VersionTLS13
	}
	if len(o.Versions) > 0 && !slices.Contains(o.Versions, "TLSv1.3") {
		config.MaxVersion = tls.VersionTLS12
	}
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return c.get(hello, o.SelfSigned != nil && *o.SelfSigned)
	}
	return config
}

// nameOf returns the host name in a ClientHello, in lower case, or "" if the ClientHello does not contain one.
func nameOf(hello *tls.ClientHelloInfo) string {
	return strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
}

// Certificates provides certificates for host names. It prefers certificates from files, then
// certificates from an ACME CA, then self-signed certificates.
type Certificates struct {
	Files           *Files // certificates from files; nil: none
	ACME            *ACME  // obtains certificates from an ACME CA; nil: disabled
	SelfSigned      bool   // whether to create self-signed certificates for names that have no other certificate
	selfSignedCerts selfSigned
}

func (c *Certificates) get(hello *tls.ClientHelloInfo, selfSigned bool) (*tls.Certificate, error) {
	name := nameOf(hello)
	if c.ACME != nil && slices.Contains(hello.SupportedProtos, acmeALPN) {
		return c.ACME.get(hello)
	}
	if c.Files != nil {
		if cert := c.Files.find(hello, name); cert != nil {
			return cert, nil
		}
	}
	if c.ACME != nil && name != "" {
		if cert, err := c.ACME.get(hello); err == nil || !selfSigned && !c.SelfSigned {
			return cert, err
		}
	}
	if selfSigned || c.SelfSigned {
		return c.selfSignedCerts.get(name)
	}
	return nil, bourse.Errorf(bourse.CodeNotFound, "no certificate for %s", bourse.Quoted(name))
}
