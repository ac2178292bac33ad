// Command server is the program in the image that TestFiles deploys. The image contains it
// under the name of each command in the configurations. It listens on the ports in $LISTEN,
// which are separated by spaces, for HTTP/1.1 and HTTP/2. If a port is followed by an s, it
// uses TLS. It answers every request with the names of the app and the group, and its own
// command line. When it runs as a release command, it prints this text and exits.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	me := os.Getenv("FLY_APP_NAME") + " " + os.Getenv("FLY_PROCESS_GROUP") + ": " + strings.Join(os.Args, " ")
	if os.Getenv("RELEASE_COMMAND") != "" {
		fmt.Println("it has run:", me)
		return nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cert, err := certificate()
	if err != nil {
		return err
	}
	failed := make(chan error)
	for _, at := range strings.Fields(os.Getenv("LISTEN")) {
		port, secure := strings.CutSuffix(at, "s")
		s := &http.Server{
			Addr:              ":" + port,
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, me) }),
			TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}},
			Protocols:         new(http.Protocols),
			ReadHeaderTimeout: time.Minute,
		}
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetHTTP2(true)
		s.Protocols.SetUnencryptedHTTP2(true)
		go func() {
			if secure {
				failed <- s.ListenAndServeTLS("", "")
			} else {
				failed <- s.ListenAndServe()
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// certificate creates a self-signed certificate.
func certificate() (out tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return out, err
	}
	text := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, text, text, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: key}, err
}
