// Echo is what the cluster's own tests run in a pod: a web server that answers with its argument, and,
// as `echo get URL`, a client that prints what a server answers.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "get" {
		get(os.Args[2])
		return
	}
	text := "hello"
	if len(os.Args) > 1 {
		text = os.Args[1]
	}
	fmt.Println("serving on :8080")
	log.Fatal(http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, text)
	})))
}

func get(url string) {
	response, err := http.Get(url)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		log.Fatal(err)
	}
}
