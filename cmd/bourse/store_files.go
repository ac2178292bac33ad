package main

import (
	"time"

	"github.com/bourse-dev/bourse/cli/worker"
	"github.com/bourse-dev/bourse/store"
)

func checkStore(dir string) (worker.StoreReport, error) {
	r, err := store.Check(dir)
	return worker.StoreReport(r), err
}

func salvageStore(dir string) (worker.StoreReport, error) {
	r, err := store.Salvage(dir, time.Now())
	return worker.StoreReport(r), err
}
