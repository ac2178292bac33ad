package main

func selfPath() string { return "/proc/self/exe" }
