package gossip

import (
	"log" //nolint:depguard // memberlist's transport requires a *log.Logger
	"log/slog"
	"net"
	"strings"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
)

// bindTries is the maximum number of attempts to find a port that is free for both TCP and UDP.
const bindTries = 10

// transport returns a new transport for memberlist, which will close it. Errors: already_exists if
// the address is in use, internal.
func (m *Members) transport() (*Transport, error) {
	below := m.config.Transport
	if below == nil {
		var err error
		if below, err = m.bind(); err != nil {
			code := bourse.CodeInternal
			if strings.Contains(err.Error(), "address already in use") { // memberlist does not wrap the cause
				code = bourse.CodeAlreadyExists
			}
			return nil, bourse.Errorf(code, "gossip on %s: %w", m.config.Bind, err)
		}
	}
	return New(below, m.config.label(), m.keyring, m.refuse), nil
}

// bind opens the sockets for the member's gossip address.
func (m *Members) bind() (t *memberlist.NetTransport, err error) {
	host, port := hostPort(m.config.Bind)
	tries := 1
	if port == 0 {
		tries = bindTries
	}
	for range tries {
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{host}, BindPort: port, Logger: log.New(gossipLog{m.config.Log, m.quiet}, "", log.LstdFlags),
		})
		if err == nil {
			return t, nil
		}
	}
	return nil, err
}

// refuse logs, at a limited rate, that incoming data was refused.
func (m *Members) refuse(from net.Addr, why error) {
	if m.quiet.Due("refused " + why.Error()) {
		m.config.Log.Warn("gossip message ignored", slog.Any("from", from), slog.Any("err", why))
	}
}
