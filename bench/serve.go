package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// greeting is what the program of a machine answers.
var greeting = []byte(strings.Repeat("hello from a machine\n", 12))

// answer is a program that machines run: it serves HTTP at $PORT, and gives every
// byte back to who asks for another protocol.
func answer() error {
	boot, _ := time.ParseDuration(os.Getenv(bootVariable)) // 0 where it has none
	time.Sleep(boot)
	s := &http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(greet)}
	return s.ListenAndServe()
}

func greet(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(greeting)
		return
	}
	c, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err == nil {
		_, _ = io.Copy(c, rest)
	}
}
