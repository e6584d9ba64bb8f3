import java.sql.*;
public class Ask {
  static void show(String what, ResultSet r) throws SQLException {
    ResultSetMetaData m = r.getMetaData();
    StringBuilder b = new StringBuilder(what + ": ");
    for (int i = 1; i <= m.getColumnCount(); i++) b.append(m.getColumnName(i)).append(' ').append(m.getColumnTypeName(i)).append(',');
    System.out.println(b);
    while (r.next()) { b = new StringBuilder("  "); for (int i = 1; i <= m.getColumnCount(); i++) b.append(r.getString(i)).append('|'); System.out.println(b); }
  }
  public static void main(String[] a) throws Exception {
    try (Connection c = DriverManager.getConnection(a[0])) {
      DatabaseMetaData d = c.getMetaData();
      System.out.println(d.getDatabaseProductName() + " " + d.getDatabaseProductVersion());
      show("catalogs", d.getCatalogs()); show("schemas", d.getSchemas()); show("types", d.getTableTypes());
      show("tables", d.getTables(null, null, "%", null)); show("views", d.getTables(null, "public", "peo%", new String[]{"TABLE", "VIEW"}));
      show("columns", d.getColumns(null, null, "people", null)); show("pk", d.getPrimaryKeys(null, null, "people"));
      show("index", d.getIndexInfo(null, null, "people", false, true)); show("imported", d.getImportedKeys(null, null, "people")); show("exported", d.getExportedKeys(null, null, "people"));
      show("typeinfo", d.getTypeInfo()); show("functions", d.getFunctions(null, "public", "%")); show("procedures", d.getProcedures(null, "public", "%")); show("privileges", d.getTablePrivileges(null, null, "people"));
      show("count", c.createStatement().executeQuery("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"));
      PreparedStatement p = c.prepareStatement("SELECT COUNT(*) AS n FROM people WHERE age >= ? AND sex = ?");
      for (int i = 0; i < 7; i++) { p.setInt(1, 30); p.setString(2, "f"); show("param", p.executeQuery()); }
      c.setAutoCommit(false);
      Statement s = c.createStatement(); s.setFetchSize(1);
      show("fetched", s.executeQuery("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"));
      try { s.executeQuery("SELECT nosuch FROM people"); } catch (SQLException e) { System.out.println("refused " + e.getSQLState()); }
      c.rollback();
      c.setReadOnly(true); System.out.println(c.isValid(5) + " " + c.getTransactionIsolation() + " " + c.getSchema());
    }
  }
}
