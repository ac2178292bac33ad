// Package registrytest runs a real image registry on loopback for tests, makes
// images of files and pushes them to it.
//
//	r := registrytest.Start(t, registrytest.Options{})
//	pushed := r.Push(t, "team/web:v1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Busybox(t)}})
//	// pushed.Name is "127.0.0.1:41234/team/web:v1", pushed.Digest "sha256:…"
//
// The registry is the distribution project's own, in the test's process, with
// its storage in memory. In front of it stands a handler that counts requests
// and bytes and, where a test asks for it, makes the registry slow, hang, stop
// half-way, refuse, or lie. Layers may hold what no honest one does.
package registrytest
