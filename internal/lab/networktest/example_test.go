package networktest_test

import (
	"context"
	"fmt"
	"io"

	"github.com/hdmlp/hdmlp/internal/lab/networktest"
)

// Two hosts of a network in memory.
func Example() {
	network := networktest.New()
	server, client := network.Host("10.0.0.1"), network.Host("10.0.0.2")
	listener, err := server.Listen(":80")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(connection, "hello")
		_ = connection.Close()
	}()
	connection, err := client.Dial(context.Background(), "10.0.0.1:80")
	if err != nil {
		fmt.Println(err)
		return
	}
	said, err := io.ReadAll(connection)
	fmt.Println(string(said), err)
	// Output: hello <nil>
}
